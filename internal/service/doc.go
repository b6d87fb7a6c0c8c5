// Package service keeps one systemd unit and its configuration file on a host as
// they shall be: installs, compares, restarts and removes them, and refuses what
// somebody else put there. Engines and routers are services.
//
// What a service shall be is known at plan, so that a hash that differs on the
// host is a difference in the plan.
package service
