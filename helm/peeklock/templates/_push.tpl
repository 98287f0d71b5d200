{{/* The Deployments that push messages to HTTP endpoints. */}}

{{- define "peeklock.pushImage" -}}
{{- with .Values.push.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "peeklock.pushSelectorLabels" -}}
app.kubernetes.io/name: {{ include "peeklock.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: push
{{- end }}

{{/* The arguments of a worker; takes a target. Its own arguments come first, so none of them changes those of the chart. */}}
{{- define "peeklock.pushArguments" -}}
{{- range .arguments }}
- {{ . | quote }}
{{- end }}
- {{ printf "--push=%s" .url | quote }}
{{- range .queues }}
- {{ printf "--queue=%s" . | quote }}
{{- end }}
- --grace-seconds=30
- --host=0.0.0.0
- --port=8080
{{- end }}

{{- define "peeklock.pushEnv" -}}
{{- $root := index . 0 }}
{{- $secret := index . 1 }}
- name: PEEKLOCK_URL
  value: {{ printf "http://%s.%s:%d" (include "peeklock.fullname" $root) $root.Release.Namespace (int $root.Values.service.port) | quote }}
- name: PEEKLOCK_API_KEY
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: api-key
- name: PEEKLOCK_PUSH_SECRET
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: push-secret
{{- with $root.Values.push.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
