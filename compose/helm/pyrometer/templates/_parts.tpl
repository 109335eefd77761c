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

{{/* The pod of a part that exists once; call with (list . $part $account): the account that it needs, or "". */}}
{{- define "pyrometer.pod" -}}
{{- $account := (index . 1).serviceAccountName | default (last .) -}}
automountServiceAccountToken: {{ not (empty $account) }}
{{- with $account }}
serviceAccountName: {{ . }}
{{- end }}
{{- with (index . 1).priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with (first .).Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (index . 1).nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (index . 1).tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
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
