"""Gateway, judge, learn, publish, housekeeping. Each claims work, calls pure code and commits."""
