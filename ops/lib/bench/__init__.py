"""`ops/bench`: what the service costs and how fast it is, one scenario at a time, over real HTTP between processes."""
