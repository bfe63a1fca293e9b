module holdfast-testbed

go 1.26.0
