package engine

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/importid"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
	"github.com/moai-dev/terraform-provider-moai/internal/systemd"
)

const (
	userEngine = "moai-engine"
	groupMoai  = "moai"
	writer     = "terraform-provider-moai"
)

func configPath(name string) string { return "/etc/moai/engines/" + name + ".json" }

func resourceName(name string) string { return "moai_engine." + name }

// record is an engine's configuration file: whose it is, and what was asked for.
// It holds no coordinates, so that a node that moves changes nothing here.
type record struct {
	Fleet    string       `json:"fleet"`
	Resource string       `json:"resource"`
	Writer   string       `json:"writer"`
	SHA256   string       `json:"sha256"` // of spec
	Spec     engines.Spec `json:"spec"`
}

// desired is what belongs on a host for an engine.
type desired struct {
	spec         engines.Spec
	launch       engines.Launch
	place        engines.Place
	fingerprint  kvcache.Fingerprint
	service      service.Service
	registration api.Engine // without UID, which only the host knows
}

// desire computes it. s has passed the kind's Check.
func desire(fleetName string, k engines.Kind, s engines.Spec, node fleet.Coordinates) (desired, error) {
	d := desired{spec: s, place: engines.PlaceFor(node.Name, s.Name)}
	d.launch = k.Launch(s, d.place)
	var err error
	if d.fingerprint, err = k.Fingerprint(s); err != nil {
		return desired{}, err
	}
	own := systemd.Owner{Fleet: fleetName, Resource: resourceName(s.Name), Writer: writer}
	unit := engines.Unit(s.Name)
	unitText, err := unitFor(s, d.launch).Render(own)
	if err != nil {
		return desired{}, fmt.Errorf("render %s: %w", unit, err)
	}
	config, err := configFor(own, s)
	if err != nil {
		return desired{}, err
	}
	d.service = service.Service{
		Owner: own, Unit: unit, UnitText: unitText,
		ImportID: importid.ID{Name: s.Name, Node: node}.String(),
		Config:   host.File{Path: configPath(s.Name), Content: config},
	}
	d.registration = api.Engine{
		Name: s.Name, Unit: unit, HTTPSocket: d.place.HTTPSocket, EngineRole: string(s.Role), Fingerprint: d.fingerprint,
		DataSize: s.Parallel.Data, StagingBytes: s.StagingBytes, MaxInFlight: s.MaxInFlight, OnTransferFailure: string(s.OnTransferFailure),
	}
	return d, nil
}

// unitFor is the engine's unit. The engine needs the daemon only to exchange KV,
// so it is started after it and lives on without it.
func unitFor(s engines.Spec, l engines.Launch) systemd.Service {
	hard := systemd.Strict()
	hard.PrivateDevices = !l.Devices
	if !l.Network {
		hard.RestrictAddressFamilies = []string{"AF_UNIX"}
	}
	typ := "exec"
	if l.NotifyReady {
		typ = "notify"
	}
	return systemd.Service{
		Description:          fmt.Sprintf("moai engine %s (%s, %s)", s.Name, s.Kind, s.Role),
		After:                []string{"network.target", "moai-kvd.service"},
		Wants:                []string{"moai-kvd.service"},
		Type:                 typ,
		Exec:                 append([]string{l.Program}, l.Args...),
		Environment:          l.Env,
		User:                 userEngine,
		Group:                groupMoai,
		UMask:                "0007",
		RuntimeDirectory:     engines.RuntimeDirectory(s.Name),
		RuntimeDirectoryMode: "0750",
		TimeoutStartSec:      l.StartTimeout,
		NoStartLimit:         true,
		LimitMEMLOCK:         "infinity",
		LimitNOFILE:          65536,
		Hardening:            hard,
	}
}

func configFor(own systemd.Owner, s engines.Spec) ([]byte, error) {
	spec, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", s.Name, err)
	}
	b, err := json.MarshalIndent(record{Fleet: own.Fleet, Resource: own.Resource, Writer: own.Writer, SHA256: host.SHA256(spec), Spec: s}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", s.Name, err)
	}
	return append(b, '\n'), nil
}

// parseRecord reads an engine's configuration file.
func parseRecord(b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("engine configuration: %w", err)
	}
	if r.Fleet == "" || r.Spec.Name == "" || r.Spec.Kind == "" {
		return record{}, errors.New("engine configuration names no fleet, engine or kind")
	}
	return r, nil
}
