package s3

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/go-locker/locker/driver"
)

func init() { driver.Register("s3", open) }

// open makes a client of its own, which connects when it is first used.
func open(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	if u.User != nil {
		return nil, errors.New("s3:// takes no user and no password: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role")
	}
	if len(u.Hosts) != 1 {
		return nil, errors.New("s3:// takes a bucket, and a folder if you like, as in s3://bucket/folder")
	}
	region, hasRegion := u.Take("region")
	endpoint, hasEndpoint := u.Take("endpoint")
	if hasRegion && region == "" {
		return nil, errors.New("parameter region is empty")
	}
	if hasEndpoint && !isEndpoint(endpoint) {
		return nil, errors.New("parameter endpoint is not http://host:port or https://host:port, without a user")
	}
	if err := u.Unknown(); err != nil {
		return nil, err
	}
	c, err := config.LoadDefaultConfig(ctx, config.WithRegion(region), config.WithHTTPClient(awshttp.NewBuildableClient()))
	if err != nil {
		return nil, fmt.Errorf("configuration of the AWS SDK: %w", err)
	}
	if c.Region == "" {
		if !hasEndpoint {
			return nil, errors.New("s3:// needs a region: add ?region=… or set AWS_REGION")
		}
		c.Region = "us-east-1"
	}
	return NewDriver(s3.NewFromConfig(c, func(o *s3.Options) {
		if hasEndpoint {
			o.BaseEndpoint, o.UsePathStyle = aws.String(endpoint), true
		}
	}), u.Hosts[0], u.Path), nil
}

func isEndpoint(s string) bool {
	e, err := url.Parse(s)
	return err == nil && (e.Scheme == "http" || e.Scheme == "https") && e.Host != "" && e.User == nil && e.RawQuery == ""
}
