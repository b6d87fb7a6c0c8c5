// Package standin answers as the tools of accelerators do, on hosts that have none: nvidia-smi, amd-smi and lspci, in
// their own formats, for a profile of hardware (8×H100 SXM, 8×MI300X).
//
// The formats follow published captures: driver 550.90.07 with CUDA 12.4, ROCm 7.2.1, pciutils of Debian 12. What
// would name a real device (UUIDs, serial numbers) is derived from the host's name by a hash. What is wrong with the
// hardware is said by the same file that says what it is; the exit codes are then the real tools'.
package standin
