"""Who may come in, what they may do, and how much: decisions on users, ACLs, delegation tokens and quotas."""
