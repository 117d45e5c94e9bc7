"""Parts that our HTTP servers share: limits, errors in one shape, middleware, and the start and end of a server."""
