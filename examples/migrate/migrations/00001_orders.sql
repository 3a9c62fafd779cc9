-- +goose Up
CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL);
INSERT INTO orders (id, state) VALUES (42, 'open');

-- +goose Down
DROP TABLE orders;
