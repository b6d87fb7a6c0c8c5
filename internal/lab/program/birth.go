package program

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// Birth is when a process was started, in the kernel's own count: with the id it tells a process from a later one of the
// same id. One that has ended has none, also if nobody has waited for it.
func Birth(pid int) (string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	if birth := birthOf(string(text)); birth != "" {
		return birth, nil
	}
	return "", errors.New("it has ended")
}

// birthOf reads the text of /proc/PID/stat; an ended process gives an empty string. The name of the program, in
// parentheses, may hold spaces and parentheses itself.
func birthOf(stat string) string {
	const state, startTime = 3, 22 // fields, counted from 1
	i := strings.LastIndexByte(stat, ')')
	if i < 0 {
		return ""
	}
	fields := strings.Fields(stat[i+1:]) // from the third on
	if len(fields) <= startTime-state || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[startTime-state]
}
