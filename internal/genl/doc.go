// Package genl sends commands to the families of generic netlink, and parses their replies. Package netlink does both
// too, but its Genlmsg has two bytes and is sent as four: two bytes of foreign memory go to the kernel with it.
package genl
