-- +goose Up
ALTER TABLE orders ADD COLUMN token INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE orders DROP COLUMN token;
