"""The message store on MariaDB and MySQL."""
