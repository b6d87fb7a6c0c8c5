package api

// Route is a request of the management API.
type Route struct {
	Method string // empty: any
	Path   string // as patterns of net/http have it
}

// Pattern is the route as net/http's ServeMux takes it.
func (r Route) Pattern() string {
	if r.Method == "" {
		return r.Path
	}
	return r.Method + " " + r.Path
}

// Routes lists every request of the management API.
func Routes() []Route {
	return []Route{
		{"GET", "/v1/status"},
		{"GET", "/v1/trust/{name}"},
		{"PUT", "/v1/trust/{name}"},
		{"DELETE", "/v1/trust/{name}"},
		{"GET", "/v1/links/{name}"},
		{"PUT", "/v1/links/{name}"},
		{"DELETE", "/v1/links/{name}"},
		{"PUT", "/v1/links/{name}/probes/{probe}"},
		{"GET", "/v1/engines/{name}"},
		{"PUT", "/v1/engines/{name}"},
		{"DELETE", "/v1/engines/{name}"},
		{"PUT", "/v1/engines/{name}/drain"},
		{"", "/v1/engines/{name}/http/{path...}"},
		{"GET", "/v1/pairs/{name}"},
		{"PUT", "/v1/pairs/{name}"},
		{"DELETE", "/v1/pairs/{name}"},
		{"GET", "/v1/transfers"},
		{"DELETE", "/v1/transfers/{id}"},
		{"GET", "/metrics"},
	}
}
