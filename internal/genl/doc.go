// Package genl sends commands to families of generic netlink, and parses their replies. We do not use package netlink
// for this, because its Genlmsg has two bytes and is sent as four: it sends two bytes of foreign memory to the kernel.
package genl
