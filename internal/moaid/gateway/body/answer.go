package body

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrNoParams means that the prefill engine answered without kv_transfer_params:
// its connector did not take part, and decode would silently compute the prompt.
var ErrNoParams = errors.New("the answer has no kv_transfer_params")

// TransferParams gives the kv_transfer_params of a prefill engine's answer as
// they are, and the transfer id in them, "" if they have none.
func TransferParams(answer []byte) (params []byte, id string, err error) {
	o, err := scan(answer)
	if err != nil {
		return nil, "", fmt.Errorf("prefill's answer: %w", err)
	}
	v, ok := o.get(KeyTransferParams)
	if !ok || string(v) == "null" || string(v) == "{}" {
		return nil, "", ErrNoParams
	}
	var known struct {
		ID string `json:"transfer_id"`
	}
	if err := json.Unmarshal(v, &known); err != nil {
		return nil, "", fmt.Errorf("prefill's kv_transfer_params: %w", err)
	}
	return v, known.ID, nil
}
