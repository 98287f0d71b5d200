{{/* The CronJobs of the data pipeline. */}}

{{- define "peeklock.pipelineImage" -}}
{{- with .Values.pipeline.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "peeklock.pipelineName" -}}
{{- printf "%s-pipeline" (include "peeklock.fullname" .) }}
{{- end }}

{{- define "peeklock.pipelineServiceAccountName" -}}
{{- with .Values.pipeline.serviceAccount }}
{{- default (ternary (include "peeklock.pipelineName" $) "default" .create) .name }}
{{- end }}
{{- end }}

{{/* A mount point may contain lost+found, and a lake is a directory of its own. */}}
{{- define "peeklock.pipelineLake" -}}
{{- default "/volume/lake" .Values.pipeline.lake.uri }}
{{- end }}

{{/* The arguments of a job; takes (list $ "name"). */}}
{{- define "peeklock.pipelineArguments" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $pipeline := $root.Values.pipeline }}
{{- $job := index $pipeline.jobs $name }}
{{- if eq $name "fullAudit" }}
- audit
- --from-scratch
{{- else }}
- {{ $name }}
{{- end }}
- {{ printf "--lake=%s" (include "peeklock.pipelineLake" $root) | quote }}
{{- range $key, $value := $pipeline.lake.storageOptions }}
- {{ printf "--storage-option=%s=%s" $key $value | quote }}
{{- end }}
{{- with $job.olderThan }}
- {{ printf "--older-than=%s" . | quote }}
{{- end }}
{{- if eq $name "report" }}
- --out={{ $pipeline.lake.uri | empty | ternary "/volume" "/tmp" }}/report.html
{{- end }}
{{- with $pipeline.pushGateway }}
- {{ printf "--push-gateway=%s" . | quote }}
{{- end }}
{{- with $job.arguments }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "peeklock.pipelineEnv" -}}
{{- $secret := default .Values.existingSecret .Values.pipeline.databaseSecret }}
- name: PEEKLOCK_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: database-url
- name: PEEKLOCK_PIPELINE_MASTER
  value: {{ printf "local[%d]" (int .Values.pipeline.threads) | quote }}
- name: PYSPARK_SUBMIT_ARGS
  value: {{ printf "--driver-memory %s pyspark-shell" .Values.pipeline.driverMemory | quote }}
{{- with .Values.pipeline.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
