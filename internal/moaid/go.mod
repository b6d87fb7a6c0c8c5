module github.com/moai-dev/terraform-provider-moai/internal/moaid

go 1.26.0

require (
	github.com/prometheus/client_golang v1.25.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
