"""The whole system on one machine under one command: real parts, no container, no root."""
