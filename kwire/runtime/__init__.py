"""The broker's runtime: its event loop, futures, work in slices and in worker threads, clocks, and transports."""
