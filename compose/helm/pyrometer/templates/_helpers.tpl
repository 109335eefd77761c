{{/* The names of all objects begin with the release's, which is usually ours. */}}
{{- define "pyrometer.name" -}}
{{- if contains "pyrometer" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-pyrometer" (.Release.Name | trunc 30) }}{{ end }}
{{- end }}

{{/* The labels of a part; call with (list . "node"). */}}
{{- define "pyrometer.labels" -}}
app.kubernetes.io/name: {{ include "pyrometer.name" (first .) }}-{{ last . }}
app.kubernetes.io/part-of: pyrometer
app.kubernetes.io/version: {{ (first .).Chart.AppVersion | quote }}
{{- end }}

{{- define "pyrometer.selector" -}}
app.kubernetes.io/name: {{ include "pyrometer.name" (first .) }}-{{ last . }}
{{- end }}

{{/* Call with (list . "exporters"). */}}
{{- define "pyrometer.image" -}}
{{- $image := (first .).Values.image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ index $image (last .) }}:{{ $image.tag | default (first .).Chart.AppVersion }}
{{- with index $image.digests (last .) }}@{{ . }}{{ end }}
{{- end }}

{{/* A container of ours: nobody special, nothing to gain. */}}
{{- define "pyrometer.restricted" -}}
runAsUser: 10935
runAsGroup: 10935
runAsNonRoot: true
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/*
Probes; call with (dict "config" $webConfig "port" 9935). The kubelet can't present a password, and the image's own check takes
401 for a sign of life.
*/}}
{{- define "pyrometer.probes" -}}
{{- range $probe, $path := dict "livenessProbe" "healthy" "readinessProbe" "ready" }}
{{ $probe }}:
  {{- if $.config.secret }}
  exec: {command: [healthcheck, "{{ ternary "https" "http" $.config.https }}://127.0.0.1:{{ $.port }}/-/{{ $path }}"]}
  {{- else }}
  httpGet: {path: /-/{{ $path }}, port: metrics}
  {{- end }}
  periodSeconds: {{ ternary 60 30 (eq $path "healthy") }}
  timeoutSeconds: 5
  {{- if eq $path "healthy" }}
  failureThreshold: 3
  {{- end }}
{{- end }}
{{- end }}

{{/* The labels that rules and boards ask for. The operator's own would be on every series. */}}
{{- define "pyrometer.relabelings" -}}
- {targetLabel: cluster, replacement: {{ (first .).Values.cluster | quote }}}
- {targetLabel: job, replacement: {{ last . }}}
- {action: labeldrop, regex: pod|container|namespace|endpoint|service}
{{- end }}

{{- define "pyrometer.nodeRelabelings" -}}
{{- include "pyrometer.relabelings" . }}
- {sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: node}
{{- with (first .).Values.monitors.rackLabel }}
- {sourceLabels: [__meta_kubernetes_node_label_{{ regexReplaceAll "[^a-zA-Z0-9_]" . "_" }}], targetLabel: rack}
{{- end }}
{{- end }}

{{/* With the labels that the operator's Prometheus selects by. */}}
{{- define "pyrometer.monitorLabels" -}}
{{ include "pyrometer.labels" . }}
{{- with (first .).Values.operator.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Where a pod finds its account's token. */}}
{{- define "pyrometer.token" -}}
/var/run/secrets/kubernetes.io/serviceaccount/token
{{- end }}

{{/* The service account of the policy; empty where it has no use for one, or has one of yours. */}}
{{- define "pyrometer.policyAccount" -}}
{{- $token := include "pyrometer.token" . -}}
{{- $mine := dict -}}
{{- range (.Values.alerting.policy.clusters | default dict) -}}
{{- if hasKey . "kubernetes" -}}
{{- if eq $token (index (.kubernetes | default dict) "token-file" | default $token) -}}
{{- $_ := set $mine "is" true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $mine (not .Values.alerting.serviceAccountName) -}}
{{ include "pyrometer.name" . }}-policy
{{- end -}}
{{- end }}

{{/* The policy's file; a cluster of Kubernetes is this one unless it says otherwise. YAML of Helm takes `on` for true. */}}
{{- define "pyrometer.policy" -}}
{{- $token := include "pyrometer.token" . -}}
{{- $here := dict "url" "https://kubernetes.default.svc" "token-file" $token "ca-file" (printf "%s/ca.crt" (dir $token)) -}}
{{- $policy := deepCopy . -}}
{{- if kindIs "bool" $policy.mode -}}
{{- $_ := set $policy "mode" (ternary "on" "off" $policy.mode) -}}
{{- end -}}
{{- range $policy.clusters -}}
{{- if hasKey . "kubernetes" -}}
{{- $_ := set . "kubernetes" (mergeOverwrite (deepCopy $here) (.kubernetes | default dict)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $policy }}
{{- end }}
