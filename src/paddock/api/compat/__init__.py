"""APIs of other platforms, implemented on the lifecycle and on Machine."""
