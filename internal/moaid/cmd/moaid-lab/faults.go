package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/standin"
)

var errFaultsUsage = errors.New(`usage: moaid-lab faults COMMAND
  show            print the hardware file
  clear           nothing is wrong
  driver off|on   the kernel driver is not loaded, is loaded
  lost N...       these accelerators have fallen off the bus
  hang SECONDS    the tools that ask the driver hang before they answer`)

// faults changes what is wrong with the hardware of this host.
func faults(args []string) int {
	if err := changeFaults(standin.HardwareFile, args); err != nil {
		fmt.Fprintf(os.Stderr, "moaid-lab: %v\n", err)
		return 1
	}
	return 0
}

func changeFaults(file string, args []string) error {
	h, err := standin.Load(file)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return errFaultsUsage
	}
	var numbers []int
	for _, a := range args[1:] {
		n, err := strconv.Atoi(a)
		if err != nil && args[0] != "driver" {
			return errFaultsUsage
		}
		numbers = append(numbers, n)
	}
	switch {
	case args[0] == "show" && len(args) == 1:
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(text)
		return err
	case args[0] == "clear" && len(args) == 1:
		h = standin.New(h.Profile, h.Host)
	case args[0] == "driver" && len(args) == 2 && (args[1] == "on" || args[1] == "off"):
		h.DriverLoaded = args[1] == "on"
	case args[0] == "lost" && len(numbers) > 0:
		h.Lost = numbers
	case args[0] == "hang" && len(numbers) == 1 && numbers[0] >= 0:
		h.HangSeconds = numbers[0]
	default:
		return errFaultsUsage
	}
	return h.Save(file)
}
