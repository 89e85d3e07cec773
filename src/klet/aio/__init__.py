"""The kit: time, periodic work, queues, backoff, broadcast, bounded threads. It imports no other klet package."""
