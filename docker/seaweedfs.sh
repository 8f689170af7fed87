#!/bin/sh
# S3 with a key for each reader; the bucket is made once. WEED_JWT_* keep the inner ports closed to readers without a key.
set -eu
umask 077
cat >/tmp/identities.json <<JSON
{"identities": [
  {"name": "web", "credentials": [{"accessKey": "$S3_WEB_ACCESS_KEY", "secretKey": "$S3_WEB_SECRET_KEY"}],
   "actions": ["Read:attune", "Write:attune", "List:attune", "Tagging:attune"]},
  {"name": "engine", "credentials": [{"accessKey": "$S3_ENGINE_ACCESS_KEY", "secretKey": "$S3_ENGINE_SECRET_KEY"}],
   "actions": ["Read:attune", "List:attune"]}
]}
JSON
(
  until echo "s3.bucket.list" | weed shell -master="localhost:$MASTER_PORT" 2>/dev/null | grep -q " attune" \
    || echo "s3.bucket.create -name attune" | weed shell -master="localhost:$MASTER_PORT" >/dev/null 2>&1; do
    sleep 1
  done
) &
exec weed mini -dir="$DATA_DIR" -ip="$HOST" -ip.bind=0.0.0.0 -webdav=false -admin.ui=false \
  -s3.port.iceberg=0 -s3.port.lance=0 -s3.config=/tmp/identities.json \
  -s3.autoCreateBucket=false -s3.allowDeleteBucketNotEmpty=false \
  -master.telemetry=false -master.resumeState=false -master.electionTimeout=1s -volume.preStopSeconds=0 \
  -s3.port=8333 -master.port="$MASTER_PORT"
