"""HTTP below the endpoints: the socket, the middleware, bodies, limits and responses."""
