"""The whole system on one machine under one command: real parts, no container, no root.

home.py         the data folder: secrets, ports, lock, state file
processes.py    Linux's means against orphans
service.py      what a part is: command, environment, readiness, needs
postgres.py  valkey.py  seaweedfs.py  apps.py      the parts
plan.py         which parts to start, and with what environment
supervisor.py   starts, watches, restarts and stops them
guard.py        outlives the supervisor, so that nothing outlives the guard
stack.py        the same for tests and the demo: start(), attach(), stop()
"""
