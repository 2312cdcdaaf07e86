"""Layer 3: gateway, judge, learn, publish. Each claims a turn, calls pure code, commits."""
