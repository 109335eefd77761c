{{/* The labels and annotations of a part's pods; call with (list . $part "alerting" $files). Other files are another pod. */}}
{{- define "pyrometer.podMetadata" -}}
{{- $part := index . 1 -}}
labels: {{- include "pyrometer.labels" (list (first .) (index . 2)) | nindent 2 }}
{{- range $name, $value := $part.podLabels }}
  {{ $name }}: {{ $value | toString | quote }}
{{- end }}
{{- $annotations := dict }}
{{- range $name, $value := $part.podAnnotations }}
{{- $_ := set $annotations $name (toString $value) }}
{{- end }}
{{- with compact (last .) }}
{{- $_ := set $annotations "pyrometer/config" (toYaml . | sha256sum) }}
{{- end }}
{{- with $annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The entries of env: a text, or where it comes from. */}}
{{- define "pyrometer.env" -}}
{{- $entries := list -}}
{{- range $name, $value := . -}}
{{- $source := kindIs "map" $value | ternary $value (dict "value" (toString $value)) -}}
{{- $entries = append $entries (merge (dict "name" $name) $source) -}}
{{- end -}}
{{- toYaml $entries }}
{{- end }}

{{/* The fields of a pod's spec that say where it runs; call with (list . $part). */}}
{{- define "pyrometer.placement" -}}
{{- $part := last . -}}
{{- with $part.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $part.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with (first .).Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The pod of a part that exists once; call with (list . $part $account): the account that it needs, or "". */}}
{{- define "pyrometer.pod" -}}
{{- $account := (index . 1).serviceAccountName | default (last .) -}}
automountServiceAccountToken: {{ not (empty $account) }}
{{- with $account }}
serviceAccountName: {{ . }}
{{- end }}
{{- include "pyrometer.placement" (list (first .) (index . 1)) }}
securityContext:
  # The volume's files are ours.
  fsGroup: 10935
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Its volumes; call with (list . $part "alerting"). */}}
{{- define "pyrometer.state" -}}
{{- $part := index . 1 -}}
{{- $storage := $part.storage | default dict -}}
{{- if not $storage.url -}}
- name: state
  {{- if $part.persistence.enabled }}
  persistentVolumeClaim: {claimName: {{ include "pyrometer.name" (first .) }}-{{ last . }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- else if $storage.secret -}}
- name: database
  secret: {secretName: {{ $storage.secret }}, defaultMode: 0440}
{{- end }}
{{- with $part.webConfig.secret }}
- name: web
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with $part.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "pyrometer.service" -}}
{{- $root := first . -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "pyrometer.name" $root }}-{{ last . }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "pyrometer.labels" (list $root (last .)) | nindent 4 }}
spec:
  selector: {{- include "pyrometer.selector" (list $root (last .)) | nindent 4 }}
  ports:
    - {name: metrics, port: {{ (index . 1).port }}, targetPort: metrics, protocol: TCP}
{{- end }}

{{/* Kept when the release is uninstalled: it holds what nobody else has. */}}
{{- define "pyrometer.claim" -}}
{{- $root := first . -}}
{{- $persistence := (index . 1).persistence -}}
{{- if $persistence.enabled }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ include "pyrometer.name" $root }}-{{ last . }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "pyrometer.labels" (list $root (last .)) | nindent 4 }}
  annotations: {helm.sh/resource-policy: keep}
spec:
  accessModes: [ReadWriteOnce]
  {{- with $persistence.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests: {storage: {{ $persistence.size }}}
{{- end }}
{{- end }}

{{/* An account and what it may do in the whole cluster; call with (list . $name $labels $rule): a rule of its ClusterRole. */}}
{{- define "pyrometer.account" -}}
{{- $name := index . 1 -}}
{{- $labels := index . 2 -}}
{{- $namespace := (first .).Release.Namespace -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels: {{- $labels | nindent 4 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels: {{- $labels | nindent 4 }}
rules:
  - {{ last . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels: {{- $labels | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects:
  - {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $namespace }}}
{{- end }}

{{/* A validation: nothing but these keys of a section of the node differs; call with (list "metadata" (list "annotations")). */}}
{{- define "pyrometer.onlyChanged" -}}
{{- $old := printf "dyn(oldObject).%s" (first .) -}}
{{- $new := printf "dyn(object).%s" (first .) -}}
{{- $keys := last . | join "', '" | printf "['%s']" -}}
- expression: "{{ $new }}.all(k, k in {{ $keys }} || (k in {{ $old }} && {{ $new }}[k] == {{ $old }}[k])) && {{ $old }}.all(k, k in {{ $keys }} || k in {{ $new }})"
  message: nothing else of the node's {{ first . }} may change
{{- end }}

{{/* The binding of an admission policy, which follows it; call with (list . $name $labels). */}}
{{- define "pyrometer.denied" -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ index . 1 }}
  labels: {{- last . | nindent 4 }}
spec: {policyName: {{ index . 1 }}, validationActions: [Deny]}
{{- end }}

{{/* Who looks at a node: nobody special, or with the one capability for the kernel's log. */}}
{{- define "pyrometer.nodeUser" -}}
{{- if .kernelLog -}}
runAsUser: 10935
runAsGroup: 10935
runAsNonRoot: true
# Otherwise the kernel ignores the capability of the file; with all others dropped there is none to gain.
allowPrivilegeEscalation: true
readOnlyRootFilesystem: true
capabilities: {drop: [ALL], add: [SYSLOG]}
{{- else -}}
{{- include "pyrometer.restricted" . }}
{{- end }}
{{- end }}

{{/* How a container runs that makes folders of the host for our user. */}}
{{- define "pyrometer.makesFolders" -}}
securityContext:
  runAsUser: 0
  runAsGroup: 0
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL], add: [CHOWN, FOWNER, DAC_OVERRIDE]}
resources:
  limits: {memory: 32Mi}
  requests: {cpu: 10m, memory: 16Mi}
{{- end }}

{{/* The mounts that the node's values ask for; call with $node. */}}
{{- define "pyrometer.nodeMounts" -}}
{{- if .kernelLog }}
- {name: kmsg, mountPath: /dev/kmsg, readOnly: true}
{{- end }}
{{- if .checks }}
- {name: checks, mountPath: /etc/pyrometer/checks, readOnly: true}
{{- end }}
{{- with .extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Their volumes; call with (list . $node). */}}
{{- define "pyrometer.nodeVolumes" -}}
{{- $node := last . -}}
{{- if $node.kernelLog }}
- name: kmsg
  hostPath: {path: /dev/kmsg, type: CharDevice}
{{- end }}
{{- if $node.checks }}
- name: checks
  configMap: {name: {{ include "pyrometer.name" (first .) }}-checks}
{{- end }}
{{- with $node.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
