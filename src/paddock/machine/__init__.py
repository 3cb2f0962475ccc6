"""Operations inside one sandbox: processes, files, ports, usage."""
