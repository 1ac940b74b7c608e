"""Workers of a member, one for each shard, and the executors that run them."""
