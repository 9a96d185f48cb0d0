"""What is sold, by date: volume types and their limits, instances, EFS, prices. Pure."""
