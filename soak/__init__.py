"""No false alarm at scale: engines that are well, real and simulated, watched for a long time: `make soak`."""
