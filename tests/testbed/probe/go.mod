module holdfast-testbed/probe

go 1.26.0
