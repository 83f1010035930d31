"""What the broker runs on: its loop, futures, work in slices and in worker threads, clocks, and transports."""
