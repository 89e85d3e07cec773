"""Who asks, and whether they may: authentication and authorization of the HTTP API."""
