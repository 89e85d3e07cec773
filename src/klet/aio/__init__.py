"""The kit: time, periodic work, queues, backoff, broadcast and bounded threads. No other klet package is imported here."""
