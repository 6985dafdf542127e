"""What runs inside the lab's engine processes. The connector never needs any of it."""
