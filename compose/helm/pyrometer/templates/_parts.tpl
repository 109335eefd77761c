{{/* The pod of a part that exists once; call with (list . $part). */}}
{{- define "pyrometer.pod" -}}
automountServiceAccountToken: false
{{- with (first .).Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (last .).nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (last .).tolerations }}
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
