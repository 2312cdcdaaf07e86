"""Real engine servers for tests: installed once under build/servers, one at a time in a run, ended whole."""
