"""How pods and containers are stopped, and what they leave."""
