package demo

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
)

// hostVariable is one host as the example's variables describe it.
type hostVariable struct {
	Address       string `json:"address"`
	Port          int    `json:"port"`
	User          string `json:"user"`
	HostKey       string `json:"host_key"`
	FabricAddress string `json:"fabric_address,omitempty"`
}

func hostVar(h plan.HostEnv) hostVariable {
	return hostVariable{Address: h.Address, Port: h.Port, User: h.User, HostKey: h.HostKey, FabricAddress: h.FabricAddress}
}

// WriteVariables answers the example's variables with the lab's hosts. Keys
// stand in the file as values, as a CI system or HCP Terraform would give them.
func (w Workspace) WriteVariables(e plan.Env) error {
	gateway := hostVar(e.Hosts[GatewayHost])
	gateway.FabricAddress = "" // the example's gateway has no KV
	vars := map[string]any{
		"fleet": w.Name, "model": model,
		"gateway": gateway, "prefill_host": hostVar(e.Hosts[PrefillHost]), "decode_host": hostVar(e.Hosts[DecodeHost]),
	}
	for name, host := range map[string]string{
		"gateway_private_key": GatewayHost, "nvidia_private_key": PrefillHost, "amd_private_key": DecodeHost,
	} {
		key, err := os.ReadFile(e.Hosts[host].PrivateKeyFile)
		if err != nil {
			return err
		}
		vars[name] = string(key)
	}
	b, err := json.MarshalIndent(vars, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.Config(), "terraform.tfvars.json"), append(b, '\n'), 0o600)
}
