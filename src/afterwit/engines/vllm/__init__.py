"""vLLM as the engine: `server` speaks its wire, `inspect` finds out what it can do, `command` starts one."""
