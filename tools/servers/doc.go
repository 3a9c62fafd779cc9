// Package servers has the versions of servers that are built from source: etcd and Kubernetes' API server.
package servers
