"""The toolbox: what is done inside one sandbox, played by the server on Machine."""
