"""Hosts that answer the requests: the binder alone, or the gateway over HTTP."""
