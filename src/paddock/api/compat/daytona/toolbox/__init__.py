"""The toolbox: Daytona's in-sandbox API, implemented by the server on Machine."""
