"""Real engine servers for tests: installed once under build/servers, started one at a time, ended whole."""
