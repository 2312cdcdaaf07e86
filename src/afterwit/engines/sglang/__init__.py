"""SGLang as the engine: `server` speaks its wire, `inspect` asks what it can do, `command` starts one."""
