#!/bin/sh
# Runs once, when the database is created. attune_owner owns the tables; attune_web may only read and write rows.
set -eu
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname template1 \
  --set owner_password="$OWNER_PASSWORD" --set web_password="$WEB_PASSWORD" <<'SQL'
CREATE ROLE attune_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE attune_web LOGIN PASSWORD :'web_password';
ALTER DEFAULT PRIVILEGES FOR ROLE attune_owner GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO attune_web;
ALTER DEFAULT PRIVILEGES FOR ROLE attune_owner GRANT USAGE, SELECT ON SEQUENCES TO attune_web;
ALTER DEFAULT PRIVILEGES FOR ROLE attune_owner GRANT EXECUTE ON FUNCTIONS TO attune_web;
CREATE DATABASE attune OWNER attune_owner;
SQL
