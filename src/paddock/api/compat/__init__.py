"""Other platforms' interfaces, spoken by this server: thin views of the lifecycle and of Machine."""
